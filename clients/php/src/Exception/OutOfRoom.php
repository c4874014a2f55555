<?php

declare(strict_types=1);

namespace Offramp\Exception;

class OutOfRoom extends Unavailable
{
}
