"""The Lua script of the Redis lease store: :class:`balancer.leases.rules.Books`, inside the server.

One script, so that every step is atomic and judged by one clock. All keys carry the group's hash tag, so the script
runs on one node of a cluster. ``ARGV[1]`` names the step, ``ARGV[2]`` the server that the caller believes to speak
to (its run id and replication id): a founded group remembers the server of its founding, and any other server means
that the tail may be lost.

Layout below ``hw:{cluster:group}:``

======================  ====  ======================================================================
``group``               hash  server, version, plan_epoch, floor, low, high (protocols)
``leader``              hash  number, nonce, holder, deadline
``workers``, ``leases`` set   instance numbers; ``topic:partition``
``worker:<i>``          hash  owner, deadline, initialised, ready, draining, profile, heartbeat
``lease:<topic>:<p>``   hash  state, owner, epoch, next, offset, leader_epoch, topic_id, start, void
``plan``                str   JSON, for people
``requests``            hash  id to JSON; ``answered`` is a list of those that may be forgotten
``moves``               list  ids in the order of their beginnings; ``move_rows`` has id to JSON
======================  ====  ======================================================================
"""

from __future__ import annotations

LEASES_LUA = r"""
local P = string.sub(KEYS[1], 1, -6)
local G = KEYS[1]
local step, server = ARGV[1], ARGV[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function get(k, f) local v = redis.call('HGET', k, f) if v == '' then return false end return v end
local function num(k, f) return tonumber(get(k, f) or '0') end
local function wkey(i) return P .. 'worker:' .. i end
local function lkey(tp) return P .. 'lease:' .. tp end
local function instance(o) return string.match(o, '^(%d+)#') end
local function number(o) return tonumber(string.match(o, '#(%d+)%.')) end
local function wake(o) if o then redis.call('PUBLISH', P .. 'wake:' .. instance(o), '') end end
local function touch(...)
  redis.call('HINCRBY', G, 'version', 1)
  redis.call('PUBLISH', P .. 'wake:planner', '')
  for _, o in ipairs({...}) do wake(o) end
end
local function live(o)
  if not o then return false end
  local w = wkey(instance(o))
  return get(w, 'owner') == o and num(w, 'deadline') > now
end
local function receives(o)
  if not live(o) then return false end
  local w = wkey(instance(o))
  return get(w, 'initialised') == '1' and get(w, 'ready') == '1' and get(w, 'draining') ~= '1'
end
local function leases() return redis.call('SMEMBERS', P .. 'leases') end
local function lease(tp)
  local v = redis.call('HMGET', lkey(tp), 'state', 'owner', 'epoch', 'next', 'void', 'start')
  if not v[1] then return nil end
  for i = 1, 6 do if v[i] == '' then v[i] = false end end
  return {state = v[1], owner = v[2], epoch = tonumber(v[3]), next = v[4], void = v[5] == '1', start = v[6]}
end
local function unowned(tp, l)
  local start = l.start
  if l.void then start = 'beginning' end
  redis.call('HSET', lkey(tp), 'state', 'FREE', 'owner', '', 'next', '', 'offset', '', 'leader_epoch', '',
    'void', '0', 'start', start)
end
local function lead(n, nonce)
  local L = P .. 'leader'
  if get(L, 'number') ~= n or get(L, 'nonce') ~= nonce then return false end
  return num(L, 'deadline') > now
end
local function mustlive(o)
  local w = wkey(instance(o))
  local cur = get(w, 'owner')
  if cur ~= o then return {'REFUSED', o .. ' is superseded by ' .. (cur or 'a new founding')} end
  local late = now - num(w, 'deadline')
  if late >= 0 then return {'REFUSED', o .. ' expired ' .. late .. ' ms ago; an expired lease never revives'} end
  return nil
end
local function mine(o)
  local out = {}
  for _, tp in ipairs(leases()) do
    local v = redis.call('HMGET', lkey(tp), 'owner', 'next')
    if v[1] == o or v[2] == o then out[#out + 1] = tp out[#out + 1] = redis.call('HGETALL', lkey(tp)) end
  end
  return out
end

if step == 'lead' then
  local L, holder, nonce, ttl = P .. 'leader', ARGV[3], ARGV[4], tonumber(ARGV[5])
  if num(L, 'deadline') > now then
    if get(L, 'nonce') ~= nonce then return {'NO'} end
  else
    redis.call('HINCRBY', L, 'number', 1)
    redis.call('HSET', L, 'nonce', nonce, 'holder', holder)
  end
  redis.call('HSET', L, 'deadline', now + ttl)
  return {'OK', get(L, 'number')}
end
if step == 'resign' then
  if lead(ARGV[3], ARGV[4]) then redis.call('HSET', P .. 'leader', 'deadline', 0) end
  return {'OK'}
end
if step == 'lost' then
  if get(G, 'server') == server then return {'OK', 0} end
  return {'OK', 1}
end
if step == 'found' then
  if not lead(ARGV[3], ARGV[4]) then return {'STALE'} end
  local floor = math.max(num(G, 'floor'), tonumber(ARGV[5]))
  for _, tp in ipairs(leases()) do
    floor = math.max(floor, num(lkey(tp), 'epoch'))
    redis.call('DEL', lkey(tp))
  end
  for _, i in ipairs(redis.call('SMEMBERS', P .. 'workers')) do redis.call('DEL', wkey(i)) end
  redis.call('DEL', P .. 'leases', P .. 'workers')
  redis.call('HSET', G, 'server', server, 'floor', floor, 'low', ARGV[7], 'high', ARGV[8],
    'plan_epoch', math.max(num(G, 'plan_epoch'), tonumber(ARGV[6])))
  touch()
  return {'OK'}
end

if get(G, 'server') ~= server then return {'LOST'} end

if step == 'claim' then
  if get(G, 'released') == '1' then
    return {'RELEASED', 'the group is given back to its ordinary protocol; headway adopt takes it again'}
  end
  local i, nonce, ttl, profile, protocol = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
  if protocol < num(G, 'low') or protocol > num(G, 'high') then
    local spoken = get(G, 'low') .. ' to ' .. get(G, 'high')
    return {'PROTOCOL', 'worker speaks protocol ' .. protocol .. ', planner ' .. spoken}
  end
  local fenced = {}
  for _, tp in ipairs(leases()) do
    local l = lease(tp)
    if l.state == 'FENCING' and l.owner then fenced[instance(l.owner)] = true end
  end
  if i == '' then
    i = 1
    while fenced[tostring(i)] or num(wkey(i), 'deadline') > now do i = i + 1 end
  end
  local w = wkey(i)
  local before = get(w, 'owner')
  local left = num(w, 'deadline') - now
  if left > 0 then
    return {'TAKEN', 'instance ' .. i .. ' is taken by ' .. before .. ' for ' .. left .. ' ms yet'}
  end
  if fenced[tostring(i)] then
    return {'TAKEN', 'instance ' .. i .. ' is taken until its earlier life is fenced'}
  end
  local n = 1
  if before then n = number(before) + 1 end
  local o = i .. '#' .. string.format('%d', n) .. '.' .. nonce
  redis.call('DEL', w)
  redis.call('HSET', w, 'owner', o, 'deadline', now + ttl, 'profile', profile)
  redis.call('SADD', P .. 'workers', i)
  touch()
  return {'OK', o}
end
if step == 'renew' then
  local o, ttl, beat = ARGV[3], tonumber(ARGV[4]), ARGV[5]
  local bad = mustlive(o)
  if bad then return bad end
  local w, changed = wkey(instance(o)), false
  redis.call('HSET', w, 'deadline', now + ttl, 'heartbeat', beat)
  for k, flag in ipairs({'initialised', 'ready', 'draining'}) do
    if ARGV[5 + k] == '1' and get(w, flag) ~= '1' then redis.call('HSET', w, flag, '1') changed = true end
  end
  if changed then touch() end
  local draining = 0
  if get(w, 'draining') == '1' then draining = 1 end
  return {'OK', num(G, 'plan_epoch'), draining, mine(o), num(G, 'released')}
end
if step == 'take' then
  local o, tp = ARGV[3], ARGV[4]
  local bad = mustlive(o)
  if bad then return bad end
  local l = lease(tp)
  if not l or l.state ~= 'FREE' or l.next ~= o then return {'REFUSED', tp .. ' is not granted to ' .. o} end
  local handed = redis.call('HMGET', lkey(tp), 'offset', 'leader_epoch')
  redis.call('HSET', lkey(tp), 'state', 'HELD', 'owner', o, 'next', '', 'offset', '', 'leader_epoch', '',
    'epoch', string.format('%d', math.max(l.epoch, num(G, 'floor')) + 1))
  touch()
  return {'OK', redis.call('HGETALL', lkey(tp)), handed[1] or '', handed[2] or ''}
end
if step == 'release' then
  local o, tp, epoch, offset, leader_epoch = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]
  local l = lease(tp)
  if not l or l.state ~= 'HELD' or l.owner ~= o or l.epoch ~= epoch then
    return {'REFUSED', tp .. ' is not held by ' .. o .. ' at epoch ' .. ARGV[5]}
  end
  unowned(tp, l)
  local grant = l.next
  if not receives(grant) then grant = false end
  if l.void then offset, leader_epoch = '', '' end
  redis.call('HSET', lkey(tp), 'next', grant or '', 'offset', offset, 'leader_epoch', leader_epoch)
  touch(grant)
  return {'OK'}
end
if step == 'leave' then
  local o = ARGV[3]
  local bad = mustlive(o)
  if bad then return bad end
  local held, first = 0, nil
  for _, tp in ipairs(leases()) do
    local l = lease(tp)
    if l.owner == o and l.state == 'HELD' then held = held + 1 first = tp end
  end
  if held > 0 then return {'REFUSED', o .. ' still holds ' .. held .. ' partitions, ' .. first .. ' among them'} end
  redis.call('HSET', wkey(instance(o)), 'deadline', 0, 'ready', '0')
  for _, tp in ipairs(leases()) do
    if lease(tp).next == o then redis.call('HSET', lkey(tp), 'next', '') end
  end
  touch()
  return {'OK'}
end
if step == 'request' then
  redis.call('HSET', P .. 'requests', ARGV[3], ARGV[4])
  touch()
  return {'OK'}
end
if step == 'set_released' then
  redis.call('HSET', G, 'released', ARGV[3])
  touch()
  return {'OK'}
end
if step == 'view' then
  local ws, ls = {}, {}
  for _, i in ipairs(redis.call('SMEMBERS', P .. 'workers')) do ws[#ws + 1] = redis.call('HGETALL', wkey(i)) end
  for _, tp in ipairs(leases()) do ls[#ls + 1] = tp ls[#ls + 1] = redis.call('HGETALL', lkey(tp)) end
  local requests = redis.call('HGETALL', P .. 'requests')
  return {'OK', now, num(G, 'version'), num(G, 'plan_epoch'), ws, ls, requests, num(G, 'released')}
end
if step == 'moves' then
  local ids = redis.call('LRANGE', P .. 'moves', 0, -1)
  if #ids == 0 then return {'OK', {}} end
  return {'OK', redis.call('HMGET', P .. 'move_rows', unpack(ids))}
end
if step == 'plan' then return {'OK', num(G, 'plan_epoch'), redis.call('GET', P .. 'plan') or ''} end

if not lead(ARGV[3], ARGV[4]) then return {'STALE'} end

if step == 'add' then
  local added = 0
  for k = 7, #ARGV do
    if redis.call('SADD', P .. 'leases', ARGV[k]) == 1 then
      redis.call('HSET', lkey(ARGV[k]), 'state', 'FREE', 'owner', '', 'epoch', get(G, 'floor') or '0', 'next', '',
        'offset', '', 'leader_epoch', '', 'topic_id', ARGV[6], 'start', ARGV[5], 'void', '0')
      added = added + 1
    end
  end
  if added > 0 then touch() end
  return {'OK', added}
end
if step == 'drop' then
  local dropped = 0
  for k = 5, #ARGV do
    local l = lease(ARGV[k])
    if l then
      redis.call('HSET', G, 'floor', string.format('%d', math.max(num(G, 'floor'), l.epoch)))
      redis.call('DEL', lkey(ARGV[k]))
      redis.call('SREM', P .. 'leases', ARGV[k])
      touch(l.owner, l.next)
      dropped = dropped + 1
    end
  end
  return {'OK', dropped}
end
if step == 'void' then
  local marked = 0
  for k = 6, #ARGV do
    local l = lease(ARGV[k])
    if l then
      local held = '0'
      if l.state == 'HELD' then held = '1' end
      redis.call('HSET', lkey(ARGV[k]), 'topic_id', ARGV[5], 'start', 'beginning', 'offset', '', 'leader_epoch', '',
        'void', held)
      touch(l.owner)
      marked = marked + 1
    end
  end
  return {'OK', marked}
end
if step == 'grant' then
  local tp, o = ARGV[5], get(wkey(ARGV[6]), 'owner')
  local l = lease(tp)
  if get(G, 'released') == '1' then return {'NO'} end
  if not l or not receives(o) or l.state == 'FENCING' or l.owner == o then return {'NO'} end
  redis.call('HSET', lkey(tp), 'next', o)
  touch(l.owner, o, l.next)
  return {'OK'}
end
if step == 'withdraw' then
  local l = lease(ARGV[5])
  if not l or not l.next then return {'NO'} end
  redis.call('HSET', lkey(ARGV[5]), 'next', '')
  touch(l.owner, l.next)
  return {'OK'}
end
if step == 'drain' then
  local o = get(wkey(ARGV[5]), 'owner')
  if not live(o) then return {'NO'} end
  redis.call('HSET', wkey(ARGV[5]), 'draining', '1')
  touch(o)
  return {'OK'}
end
if step == 'begin_fence' then
  local i, later = ARGV[5], num(wkey(ARGV[5]), 'deadline') > now
  local n, out = 0, {}
  for _, tp in ipairs(leases()) do
    local l = lease(tp)
    if l.next and instance(l.next) == i and not live(l.next) then
      redis.call('HSET', lkey(tp), 'next', '')
      touch(l.owner)
    end
    if l.owner and instance(l.owner) == i and not later then
      if l.state == 'HELD' then
        redis.call('HSET', lkey(tp), 'state', 'FENCING', 'next', '')
        touch()
      end
      n = math.max(n, number(l.owner))
      out[#out + 1] = tp
    end
  end
  return {'OK', n, out}
end
if step == 'end_fence' or step == 'supersede' then
  local i, out = ARGV[5], {}
  local upto
  if step == 'end_fence' then upto = tonumber(ARGV[6]) else
    if get(wkey(i), 'initialised') ~= '1' then return {'OK', out} end
    upto = number(get(wkey(i), 'owner')) - 1
  end
  for _, tp in ipairs(leases()) do
    local l = lease(tp)
    if l.owner and instance(l.owner) == i and number(l.owner) <= upto then
      if l.state == 'FENCING' or (step == 'supersede' and l.state == 'HELD') then
        unowned(tp, l)
        touch()
        out[#out + 1] = tp
      end
    end
  end
  return {'OK', out}
end
if step == 'publish' then
  redis.call('SET', P .. 'plan', ARGV[5])
  return {'OK', redis.call('HINCRBY', G, 'plan_epoch', 1)}
end
if step == 'settle' then
  local id, row, over, kept, answers = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
  if redis.call('HSET', P .. 'move_rows', id, row) == 1 then
    if redis.call('RPUSH', P .. 'moves', id) > kept then
      redis.call('HDEL', P .. 'move_rows', redis.call('LPOP', P .. 'moves'))
    end
  end
  if redis.call('HEXISTS', P .. 'requests', id) == 1 then
    redis.call('HSET', P .. 'requests', id, row)
    if over == '1' and redis.call('RPUSH', P .. 'answered', id) > answers then
      redis.call('HDEL', P .. 'requests', redis.call('LPOP', P .. 'answered'))
    end
  end
  return {'OK'}
end
return redis.error_reply('unknown step ' .. step)
"""
