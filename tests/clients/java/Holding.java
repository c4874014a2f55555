import io.offramp.Batch;
import io.offramp.Consumer;
import io.offramp.Offramp;
import io.offramp.OfframpException;

/** Holds a batch when SIGTERM arrives, and settles it during the shutdown. */
public final class Holding {
    public static void main(String[] args) throws Exception {
        Offramp offramp = Offramp.connect().closeOnShutdown();
        Consumer consumer = offramp.consumer("orders").open();
        Batch batch = consumer.take();
        System.out.println("took");
        try {
            consumer.take();
        } catch (OfframpException.Drained error) {
            // By the signal.
        }
        Thread hook = Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals("offramp-shutdown"))
                .findAny()
                .orElseThrow();
        // Until the hook has drained and waits for the batch.
        while (hook.getState() == Thread.State.RUNNABLE || hook.getState() == Thread.State.BLOCKED) {
            Thread.onSpinWait();
        }
        batch.ack();
    }
}
