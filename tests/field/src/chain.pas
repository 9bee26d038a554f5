program chain;
{ leaf < mid < main, without frame pointers by default. }
var
  sum: double;

function leaf(n: longint): double;
var
  i: longint;
  s: double;
begin
  s := 0;
  for i := 1 to n do
    s := s + sqrt(i);
  leaf := s;
end;

function mid(n: longint): double;
begin
  mid := leaf(n) + leaf(n div 2);
end;

var
  i: longint;
begin
  sum := 0;
  for i := 1 to 3000 do
    sum := sum + mid(20000);
  writeln(sum);
end.
