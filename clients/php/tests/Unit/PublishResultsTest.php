<?php

declare(strict_types=1);

namespace Offramp\Tests\Unit;

use Offramp\Exception\InvalidRequest;
use Offramp\Exception\OutOfRoom;
use Offramp\Exception\PartlyPublished;
use Offramp\Exception\Unavailable;
use Offramp\Internal\PublishResults;
use Offramp\Place;
use Offramp\V1\ErrorReason;
use Offramp\V1\Published;
use Offramp\V1\PublishResponse;
use Offramp\V1\PublishStatus;
use PHPUnit\Framework\TestCase;

final class PublishResultsTest extends TestCase
{
    public function testEachMessageHasAResultOfItsOwn(): void
    {
        $response = self::response(
            new Published(['status' => PublishStatus::PUBLISH_STATUS_PUBLISHED, 'lane' => 1, 'position' => 7]),
            self::failed(PublishStatus::PUBLISH_STATUS_REFUSED, ErrorReason::ERROR_REASON_BROKER_FULL, true),
            self::failed(PublishStatus::PUBLISH_STATUS_REFUSED, ErrorReason::ERROR_REASON_MESSAGE_TOO_LARGE),
            self::failed(PublishStatus::PUBLISH_STATUS_UNKNOWN, 9_999),
            new Published(),
        );
        try {
            PublishResults::places($response, 'unix:/s');
            self::fail('four are not published');
        } catch (PartlyPublished $error) {
            self::assertStringContainsString('4 of 5 messages are not published', $error->getMessage());
            self::assertFalse($error->isRetryable());
            self::assertSame(
                [Place::class, OutOfRoom::class, InvalidRequest::class, Unavailable::class, Unavailable::class],
                array_map(get_class(...), $error->results),
            );
            self::assertSame('MESSAGE_TOO_LARGE', $error->results[2]->reason);
        }
    }

    public function testASingleMessageHasItsOwnException(): void
    {
        $full = self::failed(PublishStatus::PUBLISH_STATUS_REFUSED, ErrorReason::ERROR_REASON_BROKER_FULL, true);
        $this->expectException(OutOfRoom::class);
        $this->expectExceptionMessage('unix:/s: because');
        PublishResults::places(self::response($full), 'unix:/s');
    }

    private static function failed(int $status, int $reason, bool $retryable = false): Published
    {
        $fields = ['status' => $status, 'reason' => $reason, 'retryable' => $retryable, 'detail' => 'because'];
        return new Published($fields);
    }

    private static function response(Published ...$published): PublishResponse
    {
        return new PublishResponse(['published' => $published]);
    }
}
