package io.offramp;

/**
 * Where a published message went.
 *
 * @param position -1 where the broker does not tell
 */
public record Place(int lane, long position) {}
