package io.offramp.scenarios;

import static io.offramp.scenarios.Harness.say;

import io.offramp.Offramp;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Runs a scenario of clients/SCENARIOS.md: {@code Runner [--async] <scenario>}.
 *
 * <p>With {@code --async}, scenarios with a handler use one that returns a stage. {@code --warm-up} is for the build.
 */
public final class Runner {
    interface Scenario {
        void run(ScenarioContext context) throws Exception;
    }

    private static final Map<String, Scenario> SCENARIOS = new TreeMap<>(Map.ofEntries(
            Map.entry("plain_ack", Outcomes::plainAck),
            Map.entry("nack_then_success", Outcomes::nackThenSuccess),
            Map.entry("settle_per_record", Outcomes::settlePerRecord),
            Map.entry("partial_settle", Outcomes::partialSettle),
            Map.entry("reject", Outcomes::reject),
            Map.entry("release", Outcomes::release),
            Map.entry("overloaded", Outcomes::overloaded),
            Map.entry("chosen_delay", Outcomes::chosenDelay),
            Map.entry("poison_isolated", Outcomes::poisonIsolated),
            Map.entry("lease_expiry", Leases::leaseExpiry),
            Map.entry("lease_extended", Leases::leaseExtended),
            Map.entry("killed_while_holding", Leases::killedWhileHolding),
            Map.entry("child_lives_on", Leases::childLivesOn),
            Map.entry("blocked", Leases::blocked),
            Map.entry("connection_cut", Leases::connectionCut),
            Map.entry("sidecar_comes_later", Sidecars::sidecarComesLater),
            Map.entry("sidecar_killed", Sidecars::sidecarKilled),
            Map.entry("sidecar_drained", Sidecars::sidecarDrained),
            Map.entry("drain", Sidecars::drain),
            Map.entry("drain_while_polling", Sidecars::drainWhilePolling),
            Map.entry("null_empty_and_binary", Payloads::echo),
            Map.entry("duplicate_headers", Payloads::echo),
            Map.entry("large_records", Payloads::largeRecords),
            Map.entry("record_too_large", Payloads::recordTooLarge),
            Map.entry("publish_and_reply", Payloads::publishAndReply),
            Map.entry("order_by_key", Payloads::orderByKey),
            Map.entry("two_subscriptions", Payloads::twoSubscriptions),
            Map.entry("unknown_subscription", Refusals::unknownSubscription),
            Map.entry("version_mismatch", Refusals::versionMismatch),
            Map.entry("one_at_a_time", Payloads::oneAtATime),
            Map.entry("record_identity", Payloads::recordIdentity),
            Map.entry("event_headers", Payloads::eventHeaders),
            Map.entry("refused_settlement", Refusals::refusedSettlement)));

    private Runner() {}

    public static void main(String[] args) throws Exception {
        List<String> words = List.of(args);
        if (words.contains("--warm-up")) {
            WarmUp.run();
            return;
        }
        String name = words.isEmpty() ? "" : words.get(words.size() - 1);
        try (Offramp offramp = Offramp.connect()) {
            Scenario scenario = SCENARIOS.get(name);
            Harness.expect(scenario != null, "no scenario \"" + name + "\"; there are " + SCENARIOS.keySet());
            scenario.run(new ScenarioContext(offramp, words.contains("--async")));
        } catch (Exception | AssertionError error) {
            error.printStackTrace();
            say("fail:", error.getClass().getSimpleName() + ":", Harness.inOneLine(error));
            System.exit(1);
        }
        say("pass");
    }
}
