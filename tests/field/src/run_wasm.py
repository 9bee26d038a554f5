# run < mid < spin, compiled by wasmtime, where the time goes.
import time
import wasmtime

engine = wasmtime.Engine()
store = wasmtime.Store(engine)
module = wasmtime.Module(engine, """(module
  (memory (export "m") 1)
  (func $spin (param $n i64) (result i64) (local $s i64)
    (loop $l
      (local.set $s (i64.add (i64.mul (local.get $s) (i64.const 31)) (local.get $n)))
      (local.set $n (i64.sub (local.get $n) (i64.const 1)))
      (br_if $l (i64.ne (local.get $n) (i64.const 0))))
    (local.get $s))
  (func $mid (param i64) (result i64)
    (i64.add (call $spin (local.get 0)) (i64.load (i32.const 0))))
  (func (export "run") (param i64) (result i64)
    (i64.add (call $mid (local.get 0)) (i64.load (i32.const 8)))))""")
run = wasmtime.Instance(store, module, []).exports(store)["run"]
start = time.time()
while time.time() - start < 2:
    run(store, 30000000)
