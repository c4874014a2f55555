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
    /** @param string|null $tokenFileError why the call was made with an earlier token */
    public function __construct(
        public readonly Code $status,
        string $message,
        private readonly string $address,
        private readonly ?string $tokenFileError = null,
    ) {
        parent::__construct($message);
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
        if ($this->staleTokenError() !== null) {
            return null;
        }
        $details = $this->getMessage();
        $text = $this->address . ': ' . ($details === '' ? $this->status->name : $details);
        return match ($this->status) {
            Code::NotFound => new Exception\NotFound($text, 0, $this),
            Code::InvalidArgument => new Exception\InvalidRequest($text, 0, $this),
            Code::FailedPrecondition => new Exception\Incompatible($text, 0, $this),
            Code::Unimplemented => new Exception\Incompatible(
                "$this->address: what listens there is not an Offramp sidecar, or one of another version: $details",
                0,
                $this
            ),
            Code::Unauthenticated, Code::PermissionDenied => new Exception\Forbidden($text, 0, $this),
            default => null,
        };
    }
}
