// leaf < mid < main, without frame pointers by default.
import std.stdio;

__gshared double[1024] numbers;

pragma(inline, false) double leaf(int n) {
	double sum = 0;
	foreach (i; 0 .. n)
		sum += numbers[i & 1023] * i;
	numbers[n & 1023] = sum;
	return sum;
}

pragma(inline, false) double mid(int n) {
	double sum = 0;
	foreach (i; 0 .. 10)
		sum += leaf(n + i);
	return sum;
}

void main() {
	double sum = 0;
	foreach (i; 0 .. 30_000)
		sum += mid(1000);
	writeln(sum);
}
