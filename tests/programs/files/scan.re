int is_number(const char *YYCURSOR)
{
    const char *YYMARKER;
    /*!re2c
        re2c:define:YYCTYPE = char;
        re2c:yyfill:enable = 0;
        [0-9]+ "\x00" { return 1; }
        *             { return 0; }
    */
}
