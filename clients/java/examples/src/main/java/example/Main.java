package example;

import io.offramp.BatchRecord;
import io.offramp.Offramp;

/** A worker in a plain main. OFFRAMP_ADDRESS says where the sidecar is. */
public final class Main {
    private Main() {}

    public static void main(String[] args) throws InterruptedException {
        try (Offramp offramp = Offramp.connect()) {
            // On SIGTERM: take no more batches, finish and settle those in hand, then end.
            offramp.closeOnShutdown();
            offramp.worker("orders")
                    .workers(8)
                    .handler(batch -> {
                        for (BatchRecord record : batch) {
                            String value = record.valueAsText();
                            if (value == null || !value.chars().allMatch(Character::isDigit)) {
                                record.reject("not a number");
                            } else if (record.possiblyProcessed()) {
                                System.out.println(record.id() + " may have been done before");
                            }
                        }
                        System.out.println(batch.size() + " records of " + batch.topic());
                    })
                    .start()
                    .join();
        }
    }
}
