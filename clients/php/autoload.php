<?php

declare(strict_types=1);

/*
 * For use without Composer: `require 'clients/php/autoload.php'` loads all classes of this package, and those of the
 * protobuf runtime from include_path, where Debian's php-google-protobuf puts them.
 */

spl_autoload_register(static function (string $class): void {
    $folders = ['Offramp\\V1\\' => '/generated/Offramp/V1/', 'Offramp\\Tests\\' => '/tests/', 'Offramp\\' => '/src/'];
    foreach ($folders as $prefix => $folder) {
        if (str_starts_with($class, $prefix)) {
            $file = __DIR__ . $folder . strtr(substr($class, strlen($prefix)), '\\', '/') . '.php';
            if (is_file($file)) {
                require $file;
            }
            return;
        }
    }
    if (str_starts_with($class, 'Google\\Protobuf\\') || str_starts_with($class, 'GPBMetadata\\')) {
        $file = stream_resolve_include_path(strtr($class, '\\', '/') . '.php');
        if ($file !== false) {
            require $file;
        }
    }
});
