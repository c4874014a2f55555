<?php

/*
 * Consuming with nothing but the generated messages and curl: Fetch alone, no session. A lease lasts 30 s unless asked.
 *
 * apt-get install php-cli php-curl php-google-protobuf protobuf-compiler
 * protoc -I proto --php_out=stubs proto/offramp/v1/record.proto proto/offramp/v1/consumer.proto
 * php consume.php stubs /run/offramp/offramp.sock orders
 */

declare(strict_types=1);

use Offramp\V1\FetchRequest;
use Offramp\V1\FetchResponse;
use Offramp\V1\Outcome;
use Offramp\V1\Settlement;

[, $stubs, $socket, $subscription] = $argv;
set_include_path("$stubs:" . get_include_path());
spl_autoload_register(static fn (string $class) => include strtr($class, '\\', '/') . '.php');

function fetch(string $socket, FetchRequest $request): FetchResponse
{
    $body = $request->serializeToString();
    $status = '';
    $call = curl_init('http://localhost/offramp.v1.ConsumerService/Fetch');
    curl_setopt_array($call, [
        CURLOPT_UNIX_SOCKET_PATH => $socket,
        CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE,
        CURLOPT_HTTPHEADER => ['content-type: application/grpc', 'te: trailers', 'Expect:'],
        CURLOPT_POSTFIELDS => "\0" . pack('N', strlen($body)) . $body,
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_HEADERFUNCTION => static function ($call, string $line) use (&$status): int {
            $status .= str_starts_with($line, 'grpc-') ? $line : '';
            return strlen($line);
        },
    ]);
    $answer = curl_exec($call);
    if ($answer === false || !str_contains($status, 'grpc-status: 0')) {
        throw new RuntimeException(curl_error($call) . $status);
    }
    $response = new FetchResponse();
    $response->mergeFromString(substr($answer, 5));
    return $response;
}

for ($done = []; true;) {
    $request = new FetchRequest(['subscription' => $subscription, 'wait_ms' => 10_000, 'settlements' => $done]);
    $done = [];
    foreach (fetch($socket, $request)->getBatches() as $batch) {
        foreach ($batch->getRecords() as $record) {
            echo $record->getValue(), "\n";
        }
        $done[] = new Settlement(['lease' => $batch->getLease(), 'outcome' => Outcome::OUTCOME_ACK]);
    }
}
