import core.stdc.stdio;
extern (C) int main() { int[3] a = [1, 2, 3]; int s; foreach (x; a) s += x; printf("d %d\n", s); return 0; }
