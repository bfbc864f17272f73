-- What wrk sends. Arguments (after --): file of the body, media type, requests a second over all connections (0: as
-- fast as answers come), number of paths: a path segment "qN" in the URL becomes q0, q1 and so on in turn. Ends with
-- one line of JSON.

local ffi = require("ffi")
ffi.cdef("typedef struct { long s; long ns; } syncbrok_time; int clock_gettime(int, syncbrok_time *);")

function init(args)
    local file = assert(io.open(args[1], "rb"))
    wrk.method = "POST"
    wrk.body = file:read("*a")
    file:close()
    wrk.headers["Content-Type"] = args[2]
    local rate, paths = tonumber(args[3]), tonumber(args[4])
    if wrk.path:find("/qN/", 1, true) then spread(paths) end
    if rate > 0 then pace(rate) end
end

function spread(paths)
    local requests, at = {}, 0
    for number = 0, paths - 1 do
        local path = wrk.path:gsub("/qN/", "/q" .. number .. "/")
        requests[number] = wrk.format(nil, path)
    end
    function request()
        at = (at + 1) % paths
        return requests[at]
    end
end

-- Every request takes the next tick of one clock; ticks that were missed (all connections busy) are made up for, but
-- never more than 50 ms of them.
function pace(rate)
    local now, next_ms = ffi.new("syncbrok_time"), 0
    function delay()
        ffi.C.clock_gettime(1, now)
        local now_ms = tonumber(now.s) * 1000 + tonumber(now.ns) / 1e6
        next_ms = math.max(next_ms + 1000 / rate, now_ms - 50)
        return math.floor(math.max(0, next_ms - now_ms))
    end
end

function done(summary, latency, requests)
    local failed = summary.errors
    io.write(string.format(
        '{"requests": %d, "seconds": %.6f, "refused": %d, "broken": %d, "p50_ms": %.3f, "p99_ms": %.3f}\n',
        summary.requests, summary.duration / 1e6, failed.status,
        failed.connect + failed.read + failed.write + failed.timeout,
        latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
