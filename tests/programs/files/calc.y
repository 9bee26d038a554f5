%{
#include <ctype.h>
#include <stdio.h>
int yylex(void);
void yyerror(const char *text) { puts(text); }
%}
%token NUMBER
%left '+' '-'
%left '*'
%%
lines: | lines expr '\n' { printf("%d\n", $2); };
expr: NUMBER | expr '+' expr { $$ = $1 + $3; } | expr '-' expr { $$ = $1 - $3; } | expr '*' expr { $$ = $1 * $3; };
%%
int yylex(void)
{
    int c = getchar();
    if (isdigit(c)) { yylval = c - '0'; return NUMBER; }
    return c == EOF ? 0 : c;
}
int main(void) { return yyparse(); }
