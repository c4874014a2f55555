<?php

// Called by php-fpm, without a web server (push.fastcgi), or by any web server: php -S 127.0.0.1:8080 worker.php

require __DIR__ . '/../../clients/php/push/handle.php';

Offramp\Push\handle(function (Offramp\Push\Record $record): void {
    $order = json_decode((string) $record->value, true);
    if (!isset($order['id'], $order['amount'])) {
        throw new Offramp\Push\Reject('not an order');
    }
    error_log("order {$order['id']} of {$order['amount']}");
});
