/**
 * The Java client of Offramp: takes batches from the sidecar, and settles them.
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
 * <p>{@link io.offramp.Worker} runs a handler, {@link io.offramp.Consumer} iterates over batches,
 * {@link io.offramp.Publisher} sends messages. The generated stubs are in {@code io.offramp.v1}. The walk of a batch:
 * {@code Connection} keeps one {@code Session} after another; {@code Session} reads the stream -> {@code Inbox} ->
 * {@code HandlerRunner} or {@code Consumer} -> {@code Settlements}, {@code Outbox} -> {@code Session} writes the
 * stream. {@code CreditControl} decides how many batches to ask for.
 */
@NullMarked
package io.offramp;

import org.jspecify.annotations.NullMarked;
