let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)
let () = Printf.printf "fib %d\n" (fib 15); try failwith "x" with Failure m -> print_endline m
