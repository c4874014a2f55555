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
    public function __construct(public readonly Code $status, string $message, private readonly string $address)
    {
        parent::__construct($message);
    }

    /** The error for a status that no retry will change, or null for one that may pass. */
    public function refusal(): ?Exception\Refused
    {
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
