<?php

declare(strict_types=1);

namespace Offramp\Grpc;

use Offramp\V1\ErrorInfo as Info;
use Offramp\V1\ErrorStatus as Details;

/**
 * What the sidecar says about an error to programs.
 *
 * @internal
 */
final class ErrorInfo
{
    private const TYPE = 'type.googleapis.com/google.rpc.ErrorInfo';
    private const DOMAIN = 'offramp.v1';

    /** @param string $reason a name of `offramp.v1.ErrorReason` without its prefix */
    public function __construct(public readonly string $reason, public readonly bool $retryable)
    {
    }

    /** From the trailer `grpc-status-details-bin`; null if no sidecar has made it. */
    public static function parse(string $base64): ?self
    {
        $bytes = base64_decode($base64, true);
        if ($bytes === false || $bytes === '') {
            return null;
        }
        try {
            $details = new Details();
            $details->mergeFromString($bytes);
            foreach ($details->getDetails() as $detail) {
                $info = new Info();
                if ($detail->getTypeUrl() === self::TYPE) {
                    $info->mergeFromString($detail->getValue());
                }
                if ($info->getDomain() === self::DOMAIN) {
                    $metadata = iterator_to_array($info->getMetadata());
                    return new self($info->getReason(), ($metadata['retryable'] ?? '') === 'true');
                }
            }
        } catch (\Exception) {
            // Something between has made the status.
        }
        return null;
    }
}
