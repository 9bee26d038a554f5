(* f < .. < g < h, where the time goes. *)
let rec h n s = if n = 0 then s else h (n - 1) (((s * 31) + n) mod 1000003)
let g n = 1 + h n 1
let rec f n = if n = 0 then g 100000 else 1 + f (n - 1)
let () =
  let x = ref 0 in
  while Sys.time () < 2.0 do x := !x + f 5 done;
  print_int !x
