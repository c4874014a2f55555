/**
 * The Java client of Offramp: take batches from the sidecar, say how it went.
 *
 * <pre>{@code
 * try (Offramp offramp = Offramp.connect()) {
 *     offramp.closeOnShutdown();
 *     offramp.worker("orders").workers(8).handler(batch -> {
 *         for (BatchRecord record : batch) {
 *             System.out.println(record.valueAsText());
 *         }
 *     }).start().join();
 * }
 * }</pre>
 *
 * <p>{@link io.offramp.Worker} runs a handler, {@link io.offramp.Consumer} gives batches to iterate over,
 * {@link io.offramp.Publisher} sends messages. The generated stubs are in {@code io.offramp.v1}.
 */
package io.offramp;
