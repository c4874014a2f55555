import io.offramp.Batch;
import io.offramp.Consumer;
import io.offramp.Offramp;

/** Has a batch in hand when it is told to stop, and settles it while that is under way. */
public final class Holding {
    public static void main(String[] args) throws Exception {
        Offramp offramp = Offramp.connect().closeOnShutdown();
        Consumer consumer = offramp.consumer("orders").open();
        Batch batch = consumer.take();
        System.out.println("took");
        while (consumer.take() != null) {}
        Thread hook = Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals("offramp-shutdown"))
                .findAny()
                .orElseThrow();
        // Until it has done what it does by itself, and waits.
        while (hook.getState() == Thread.State.RUNNABLE || hook.getState() == Thread.State.BLOCKED) {
            Thread.onSpinWait();
        }
        batch.ack();
    }
}
