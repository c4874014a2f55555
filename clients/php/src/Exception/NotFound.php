<?php

declare(strict_types=1);

namespace Offramp\Exception;

class NotFound extends Refused
{
}
