<?php

declare(strict_types=1);

namespace Offramp\Exception;

class Drained extends OfframpException
{
}
