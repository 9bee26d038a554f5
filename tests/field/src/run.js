// f < g < h, where the time goes.
function h(n) { let sum = 1; for (let i = 0; i < n; i++) sum = (sum * 31 + i) % 1000003; return sum; }
function g(n) { return h(n) + 1; }
function f(n) { return n === 0 ? g(100000) : 1 + f(n - 1); }
const start = Date.now();
let x = 0;
while (Date.now() - start < 2000) x += f(5);
console.log(x);
