package io.offramp;

import io.offramp.v1.Settlement;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** A settlement until it is answered. */
final class PendingSettlement {
    final Batch batch;
    final Settlement settlement;
    /** No handler asked for it, so a result other than SETTLED is not worth a warning. */
    final boolean automatic;

    final CompletableFuture<SettleResult> answer;
    /** The number of pieces that are sent instead of one that was too large, and their results, in one shared list. */
    private final int pieces;
    private final @Nullable List<SettleResult> results;

    PendingSettlement(Batch batch, Settlement settlement, boolean automatic) {
        this(batch, settlement, automatic, new CompletableFuture<>(), 1, null);
    }

    private PendingSettlement(
            Batch batch,
            Settlement settlement,
            boolean automatic,
            CompletableFuture<SettleResult> answer,
            int pieces,
            @Nullable List<SettleResult> results) {
        this.batch = batch;
        this.settlement = settlement;
        this.automatic = automatic;
        this.answer = answer;
        this.pieces = pieces;
        this.results = results;
    }

    List<PendingSettlement> split(int mostBytes, int mostParts) {
        List<Settlement> split = Settlements.split(settlement, batch.size(), mostBytes, mostParts);
        List<SettleResult> shared = new ArrayList<>();
        List<PendingSettlement> out = new ArrayList<>();
        for (Settlement one : split) {
            out.add(new PendingSettlement(batch, one, automatic, answer, split.size(), shared));
        }
        return out;
    }

    /** The result of the whole settlement; null while results of other pieces are missing. */
    @Nullable SettleResult addResult(SettleResult result) {
        if (results == null) {
            return result;
        }
        results.add(result);
        return results.size() < pieces ? null : SettleResult.merge(results);
    }
}
