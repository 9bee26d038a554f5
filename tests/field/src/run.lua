-- g < h: a trace of LuaJIT, where the time goes.
local start = os.clock()
local function h(n) local sum = 0; for i = 1, n do sum = (sum * 31 + i) % 1000003 end return sum end
local function g(n) return h(n) + 1 end
local sum = 0
while os.clock() - start < 2 do sum = sum + g(1000000) end
print(sum)
