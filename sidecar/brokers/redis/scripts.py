"""What must happen at once inside the server, in Lua. Each runs within milliseconds.

All may run when the server's memory is full: they free some, or take little.
"""

from dataclasses import dataclass, field
from hashlib import sha1


@dataclass(frozen=True, slots=True)
class Script:
    text: str
    #: what the server calls it
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


def _script(body: str) -> Script:
    return Script("#!lua flags=allow-oom\n" + _HELPERS + body)


_HELPERS = """
local stream, group, me = KEYS[1], ARGV[1], ARGV[2]
local function as_table(flat)
  local found = {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end
local function group_of(name)
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local found = as_table(flat)
    if found.name == name then return found end
  end
end
local function size_of(entry)
  local size = 0
  for i = 1, #entry[2] do size = size + #entry[2][i] end
  return size
end
"""

#: group, consumer, records, bytes -> how many entries were trimmed unread, new entries.
#: One by one, so that no more than the last exceeds the bytes: COUNT knows no sizes.
READ = _script("""
local lost, found, size = 0, {}, 0
local before = group_of(group)
if before and before.lag and before['entries-read'] then
  lost = before.lag - redis.call('XLEN', stream)
  if lost > 0 then
    -- The server goes on to count them as unread. Tell it, so that nobody counts them again.
    redis.call('XGROUP', 'SETID', stream, group, before['last-delivered-id'], 'ENTRIESREAD',
      before['entries-read'] + lost)
  end
end
while #found < tonumber(ARGV[3]) and size < tonumber(ARGV[4]) do
  local one = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', 1, 'STREAMS', stream, '>')
  if not one then break end
  local entry = one[1][2][1]
  found[#found + 1] = entry
  size = size + size_of(entry)
end
return {math.max(lost, 0), found}
""")

#: group, consumer, bytes, milliseconds, owner (empty: anybody), ids -> how many of these were trimmed, how many ids are
#: done, entries, their numbers of deliveries. Takes those that are still the owner's and idle for so long.
CLAIM = _script("""
local lost, done, found, counts, size = 0, 0, {}, {}, 0
for i = 6, #ARGV do
  if size >= tonumber(ARGV[3]) then break end
  local pending
  if ARGV[5] == '' then
    pending = redis.call('XPENDING', stream, group, 'IDLE', ARGV[4], ARGV[i], ARGV[i], 1)
  else
    pending = redis.call('XPENDING', stream, group, 'IDLE', ARGV[4], ARGV[i], ARGV[i], 1, ARGV[5])
  end
  if pending[1] then
    local entry = redis.call('XCLAIM', stream, group, me, 0, ARGV[i])[1]
    if entry then
      found[#found + 1] = entry
      counts[#counts + 1] = pending[1][4]
      size = size + size_of(entry)
    else
      lost = lost + 1
    end
  end
  done = done + 1
end
return {lost, done, found, counts}
""")

#: group, consumer, milliseconds, ids -> for each 1 if it is ours: it has been idle for so long from now on
SET_IDLE = _script("""
local ours = {}
for i = 4, #ARGV do
  ours[#ours + 1] = 0
  if redis.call('XPENDING', stream, group, ARGV[i], ARGV[i], 1, me)[1] then
    ours[#ours] = #redis.call('XCLAIM', stream, group, me, 0, ARGV[i], 'IDLE', ARGV[3], 'JUSTID')
  end
end
return ours
""")

#: group (empty: nobody's) -> entries that wait (-1: the server cannot tell), entries that are pending, milliseconds for
#: which the first of those that wait has waited
DEPTH = _script("""
local known = group ~= '' and group_of(group)
local waiting, pending, last = redis.call('XLEN', stream), -1, '-'
if known then
  -- It counts what was trimmed unread as well.
  waiting, pending = math.min(known.lag or -1, waiting), known.pending
  last = '(' .. known['last-delivered-id']
end
local first = redis.call('XRANGE', stream, last, '+', 'COUNT', 1)[1]
if not first then return {0, pending, -1} end
local time = redis.call('TIME')
local age = time[1] * 1000 + math.floor(time[2] / 1000) - string.match(first[1], '^%d+')
return {waiting, pending, math.max(age, 0)}
""")

#: -> how many entries were deleted that all groups of the stream have settled
TRIM = _script("""
local function parts(id)
  local ms, sequence = string.match(id, '(%d+)-(%d+)')
  return tonumber(ms), tonumber(sequence)
end
local least_ms, least_sequence
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local one = as_table(flat)
  local ms, sequence = parts(one['last-delivered-id'])
  sequence = sequence + 1
  if one.pending > 0 then ms, sequence = parts(redis.call('XPENDING', stream, one.name)[2]) end
  if not least_ms or ms < least_ms or (ms == least_ms and sequence < least_sequence) then
    least_ms, least_sequence = ms, sequence
  end
end
if not least_ms then return 0 end
return redis.call('XTRIM', stream, 'MINID', string.format('%.0f-%.0f', least_ms, least_sequence))
""")

#: group, consumer (empty: all that were silent for so long), milliseconds -> how many consumers were deleted.
#: Only those with nothing pending: what is pending for a consumer is gone with it
FORGET = _script("""
local deleted = 0
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local one = as_table(flat)
  if one.pending == 0 and (one.name == me or (me == '' and one.idle > tonumber(ARGV[3]))) then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, one.name)
    deleted = deleted + 1
  end
end
return deleted
""")
