package io.offramp;

/**
 * Where a message was published.
 *
 * @param position -1 if the broker does not report it
 */
public record Place(int lane, long position) {}
