<?php

declare(strict_types=1);

namespace Offramp\Exception;

class Forked extends OfframpException
{
}
