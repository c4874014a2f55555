<?php

declare(strict_types=1);

namespace Offramp\Exception;

class Refused extends OfframpException
{
}
