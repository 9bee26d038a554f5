%% main < repeat < loop < h, where the time goes.
-module(run).
-export([main/0, repeat/1, loop/2, h/2]).
h(0, S) -> S;
h(N, S) -> h(N - 1, (S * 31 + N) rem 1000003).
%% Not deeper than perf's 127 addresses.
loop(0, X) -> X;
loop(Depth, X) -> 1 + loop(Depth - 1, X + h(1000000, 1)).
repeat(End) ->
    case erlang:monotonic_time(millisecond) > End of
        true -> halt();
        false -> loop(20, 0), repeat(End)
    end.
main() -> repeat(erlang:monotonic_time(millisecond) + 2500).
