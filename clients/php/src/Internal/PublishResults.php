<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Exception\OfframpException;
use Offramp\Exception\OutOfRoom;
use Offramp\Exception\PartlyPublished;
use Offramp\Exception\Refused;
use Offramp\Exception\Unavailable;
use Offramp\Grpc\ErrorStatus;
use Offramp\Place;
use Offramp\V1\ErrorReason;
use Offramp\V1\Published;
use Offramp\V1\PublishResponse;
use Offramp\V1\PublishStatus;

/**
 * What became of the messages of one call.
 *
 * @internal
 */
final class PublishResults
{
    /**
     * @return list<Place>
     * @throws OfframpException `PartlyPublished`, or the error of a single message
     */
    public static function places(PublishResponse $response, string $address): array
    {
        $results = [];
        $failed = [];
        foreach ($response->getPublished() as $one) {
            $results[] = $result = self::result($one, $address);
            if (!$result instanceof Place) {
                $failed[] = $result;
            }
        }
        if ($failed === []) {
            return $results;
        }
        if (count($results) === 1) {
            throw $failed[0];
        }
        $counts = count($failed) . ' of ' . count($results);
        $first = $failed[0]->getMessage();
        throw new PartlyPublished("$counts messages are not published, or may not be; the first: $first", $results);
    }

    private static function result(Published $one, string $address): Place|Refused|Unavailable
    {
        if ($one->getStatus() === PublishStatus::PUBLISH_STATUS_PUBLISHED) {
            return new Place($one->getLane(), (int) $one->getPosition());
        }
        $text = "$address: " . ($one->getDetail() === '' ? 'the message is not published' : $one->getDetail());
        $reason = self::reason($one->getReason());
        if ($one->getStatus() === PublishStatus::PUBLISH_STATUS_REFUSED && !$one->getRetryable()) {
            $kind = ErrorStatus::kindByReason($reason);
        } else {
            $kind = $reason === 'BROKER_FULL' ? OutOfRoom::class : Unavailable::class;
        }
        return (new $kind($text))->withReason($reason);
    }

    private static function reason(int $number): string
    {
        if ($number === ErrorReason::ERROR_REASON_UNSPECIFIED) {
            return '';
        }
        try {
            return substr(ErrorReason::name($number), strlen('ERROR_REASON_'));
        } catch (\UnexpectedValueException) {
            return '';
        }
    }
}
