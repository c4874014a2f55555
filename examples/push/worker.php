<?php

// The same for any web server with PHP: php -S 127.0.0.1:8080 examples/push/worker.php

$batch = json_decode(file_get_contents('php://input'), true, flags: JSON_THROW_ON_ERROR);
$failures = [];
foreach ($batch['records'] as $index => $record) {
    $order = json_decode($record['value'] ?? '', true);
    if (!isset($order['id'], $order['amount'])) {
        // No retry will make an order of it. All others of the batch are done.
        $failures[] = ['index' => $index, 'outcome' => 'reject', 'reason' => 'not an order'];
        continue;
    }
    error_log("order {$order['id']} of {$order['amount']}");
}
header('Content-Type: application/json');
echo json_encode(['failures' => $failures]);
