<?php

declare(strict_types=1);

namespace Offramp\Grpc;

use Offramp\Exception;

/**
 * The call was answered with a status other than OK.
 *
 * @internal
 */
final class ErrorStatus extends \RuntimeException
{
    /** why, as a name of `offramp.v1.ErrorReason`; empty: gRPC itself or something between has made the status */
    public readonly string $reason;

    /** @param string|null $tokenFileError why the call was made with an earlier token */
    public function __construct(
        public readonly Code $status,
        string $message,
        private readonly string $address,
        private readonly ?string $tokenFileError = null,
        private readonly ?ErrorInfo $info = null,
    ) {
        parent::__construct($message);
        $this->reason = $info?->reason ?? '';
    }

    /**
     * The message, if the sidecar refused a token that may be out of date since its file could not be read; else null.
     */
    public function staleTokenError(): ?string
    {
        if ($this->status !== Code::Unauthenticated || $this->tokenFileError === null) {
            return null;
        }
        return "$this->tokenFileError, and the sidecar at $this->address refused the token that it had before "
            . "({$this->getMessage()}): write the new one into the file";
    }

    /** The error for a status for which a retry does not help; else null. */
    public function refusal(): ?Exception\Refused
    {
        if ($this->staleTokenError() !== null || $this->info?->retryable === true) {
            return null;
        }
        $details = $this->getMessage();
        $text = $this->address . ': ' . ($details === '' ? $this->status->name : $details);
        if ($this->status === Code::Unimplemented) {
            $text = "$this->address: what listens there is not an Offramp sidecar, or one of another version: $details";
        }
        $kind = $this->info === null ? $this->kindByStatus() : self::kindByReason($this->reason);
        return $kind === null ? null : (new $kind($text, 0, $this))->withReason($this->reason);
    }

    /** @return class-string<Exception\Refused> */
    public static function kindByReason(string $reason): string
    {
        return match ($reason) {
            'SUBSCRIPTION_NOT_FOUND', 'BROKER_NOT_FOUND', 'TOPIC_NOT_FOUND', 'LANE_NOT_FOUND'
                => Exception\NotFound::class,
            'INVALID_REQUEST', 'TOO_MANY_ENTRIES', 'MESSAGE_TOO_LARGE', 'RECORD_TOO_LARGE'
                => Exception\InvalidRequest::class,
            'VERSION' => Exception\Incompatible::class,
            'UNAUTHENTICATED', 'FORBIDDEN' => Exception\Forbidden::class,
            default => Exception\Refused::class,
        };
    }

    /** @return class-string<Exception\Refused>|null null: a retry may help */
    private function kindByStatus(): ?string
    {
        return match ($this->status) {
            Code::NotFound => Exception\NotFound::class,
            Code::InvalidArgument => Exception\InvalidRequest::class,
            Code::FailedPrecondition, Code::Unimplemented => Exception\Incompatible::class,
            Code::Unauthenticated, Code::PermissionDenied => Exception\Forbidden::class,
            default => null,
        };
    }
}
