%%{ machine m; main := ( 'a'+ 'b' )* ; }%%
%% write data;
int run(const char *p, const char *pe) { int cs; %% write init; %% write exec; return cs; }
