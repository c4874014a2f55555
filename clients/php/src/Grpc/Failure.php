<?php

declare(strict_types=1);

namespace Offramp\Grpc;

use Offramp\Exception;

/**
 * The sidecar answered with a status other than OK.
 *
 * @internal
 */
final class Failure extends \RuntimeException
{
    /** @param string|null $tokenTrouble why the call was made with an old token */
    public function __construct(
        public readonly Code $status,
        string $message,
        private readonly string $address,
        private readonly ?string $tokenTrouble = null,
    ) {
        parent::__construct($message);
    }

    /** The sidecar refused a token that may be out of date: why, in a sentence. Null if it was something else. */
    public function oldToken(): ?string
    {
        if ($this->status !== Code::Unauthenticated || $this->tokenTrouble === null) {
            return null;
        }
        return "$this->tokenTrouble, and the sidecar at $this->address refused the token that it had before "
            . "({$this->getMessage()}): write the new one into the file";
    }

    /** The error for a status that no retry will change, or null for one that may pass. */
    public function refusal(): ?Exception\Refused
    {
        if ($this->oldToken() !== null) {
            return null;
        }
        $details = $this->getMessage();
        $text = $this->address . ': ' . ($details === '' ? $this->status->name : $details);
        return match ($this->status) {
            Code::NotFound => new Exception\NotFound($text, 0, $this),
            Code::InvalidArgument => new Exception\InvalidRequest($text, 0, $this),
            Code::FailedPrecondition => new Exception\Incompatible($text, 0, $this),
            Code::Unimplemented => new Exception\Incompatible(
                "$this->address: what listens there is no Offramp sidecar, or one of another version: $details",
                0,
                $this
            ),
            Code::Unauthenticated, Code::PermissionDenied => new Exception\Forbidden($text, 0, $this),
            default => null,
        };
    }
}
