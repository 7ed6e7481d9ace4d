"""What runs inside Redis: versions are compared and rows written in one step, many rows a call.

A row's version stands in the row (`__version` of a hash, at the head of a JSON text); that of a member of a ranking in
a hash beside it; that of one that was deleted under a key of its own, for a while. A row of the same version is written
again: the epoch that is committed stands, and not the half of one that failed before it.

A version with a minus is that of a row that went. Both scripts give back, for rows that could not be written, their
number in the call and the server's reason, one after the other. Lua's numbers are doubles: exact up to 2**53, and no
log is that long.
"""

from __future__ import annotations

GONE, VERSIONS, LEDGER = "millrace:gone:", "millrace:versions:", "millrace:ledger:"

# KEYS are the rows' keys. ARGV: the form, the milliseconds that rows (or "") and versions of deleted ones are kept,
# then of each row its version and its text.
ROWS = """
local hash, ttl, kept, refused = ARGV[1] == 'hash', ARGV[2], ARGV[3], {}

local function held(key)
  if hash then return redis.pcall('HGET', key, '__version') end
  local head = redis.pcall('GETRANGE', key, 0, 40)
  if type(head) == 'table' then return head end
  return string.match(head, '^{"__version":(%d+)') or false
end

local function put(key, version, text)
  if hash then
    local fields = {'__version', version}
    for name, value in pairs(cjson.decode(text)) do
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
    redis.call('DEL', key)
    redis.call('HSET', key, unpack(fields))
  else
    redis.call('SET', key, '{"__version":' .. version .. (text == '{}' and '}' or ',' .. string.sub(text, 2)))
  end
  if ttl ~= '' then redis.call('PEXPIRE', key, ttl) end
end

for i, key in ipairs(KEYS) do
  local went, version = string.match(ARGV[2 * i + 2], '^(-?)(%d+)$')
  local text, gone = ARGV[2 * i + 3], 'millrace:gone:' .. key
  local before = held(key)
  if type(before) == 'table' then
    refused[#refused + 1] = i
    refused[#refused + 1] = before.err
  else
    before = tonumber(before or redis.call('GET', gone) or -1)
    if before <= tonumber(version) then
      if went == '-' then
        redis.call('DEL', key)
        redis.call('SET', gone, version, 'PX', kept)
      else
        put(key, version, text)
        redis.call('DEL', gone)
      end
    end
  end
end
return refused
"""

# KEYS: the ranking. ARGV: the milliseconds that versions of those that went are kept, then of each row the member, its
# version and its score.
RANKING = """
local ranking, kept, refused = KEYS[1], ARGV[1], {}
local versions = 'millrace:versions:' .. ranking
for i = 1, (#ARGV - 1) / 3 do
  local member, score = ARGV[3 * i - 1], ARGV[3 * i + 1]
  local went, version = string.match(ARGV[3 * i], '^(-?)(%d+)$')
  local gone = 'millrace:gone:' .. ranking .. ':' .. member
  local before = tonumber(redis.call('HGET', versions, member) or redis.call('GET', gone) or -1)
  if before <= tonumber(version) then
    if went == '-' then
      redis.call('ZREM', ranking, member)
      redis.call('HDEL', versions, member)
      redis.call('SET', gone, version, 'PX', kept)
    else
      local told = redis.pcall('ZADD', ranking, score, member)
      if type(told) == 'table' then
        refused[#refused + 1] = i
        refused[#refused + 1] = told.err
      else
        redis.call('HSET', versions, member, version)
        redis.call('DEL', gone)
      end
    end
  end
end
return refused
"""

# KEYS: of each row the key that was built beside, and the one that is read. ARGV: what type the latter may have. It
# gives back how many were not moved because somebody keeps something else there.
MOVE = """
local left = 0
for i = 1, #KEYS, 2 do
  local new, key = KEYS[i], KEYS[i + 1]
  if redis.call('EXISTS', new) == 1 then
    local kind = redis.call('TYPE', key).ok
    if kind == 'none' or kind == ARGV[1] then
      redis.call('RENAME', new, key)
      redis.call('DEL', 'millrace:gone:' .. key)
    else
      redis.call('DEL', new)
      left = left + 1
    end
  end
end
return left
"""
