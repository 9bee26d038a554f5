<?php
// f < g < h, where the time goes.
function h($n) { $s = 1; for ($i = 0; $i < $n; $i++) $s = ($s * 31 + $i) % 1000003; return $s; }
function g($n) { return h($n) + 1; }
function f($n) { return g($n) + 1; }
$start = microtime(true);
while (microtime(true) - $start < 2) f(100000);
