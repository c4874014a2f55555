package io.offramp;

import io.offramp.v1.Settlement;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** A settlement until it is answered. */
final class Settling {
    final Batch batch;
    final Settlement settlement;
    /** No handler said it, so nobody needs to hear what became of it. */
    final boolean ours;

    final CompletableFuture<SettleResult> answer;
    /** How many travel instead of one that was too large, and what was answered to them; all share one list. */
    private final int pieces;
    private final List<SettleResult> results;

    Settling(Batch batch, Settlement settlement, boolean ours) {
        this(batch, settlement, ours, new CompletableFuture<>(), 1, null);
    }

    private Settling(
            Batch batch,
            Settlement settlement,
            boolean ours,
            CompletableFuture<SettleResult> answer,
            int pieces,
            List<SettleResult> results) {
        this.batch = batch;
        this.settlement = settlement;
        this.ours = ours;
        this.answer = answer;
        this.pieces = pieces;
        this.results = results;
    }

    List<Settling> split(int mostBytes) {
        List<Settlement> split = Settlements.split(settlement, batch.size(), mostBytes);
        List<SettleResult> shared = new ArrayList<>();
        List<Settling> out = new ArrayList<>();
        for (Settlement one : split) {
            out.add(new Settling(batch, one, ours, answer, split.size(), shared));
        }
        return out;
    }

    /** The answer to all of it, or null while answers to other pieces are missing. */
    SettleResult conclude(SettleResult result) {
        if (results == null) {
            return result;
        }
        results.add(result);
        return results.size() < pieces ? null : SettleResult.merge(results);
    }
}
