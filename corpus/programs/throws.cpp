// The program of corpus/traces/throws.bin: parses small expressions by recursive descent, and
// throws from deep inside where one is malformed. Recorded with
//   g++ -O2 -g0 throws.cpp -o throws
//   unwind-sim record --truth --from main --at every:37 -o throws.bin -- ./throws
#include <cctype>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>

struct Parser {
    const std::string &text;
    size_t at = 0;

    long factor() {
        if (at < text.size() && text[at] == '(') {
            ++at;
            long value = sum();
            if (at >= text.size() || text[at] != ')')
                throw std::runtime_error("no ) at " + std::to_string(at));
            ++at;
            return value;
        }
        if (at >= text.size() || !std::isdigit(static_cast<unsigned char>(text[at])))
            throw std::out_of_range("no number at " + std::to_string(at));
        long value = 0;
        while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])))
            value = value * 10 + (text[at++] - '0');
        return value;
    }
    long product() {
        long value = factor();
        while (at < text.size() && text[at] == '*') {
            ++at;
            value *= factor();
        }
        return value;
    }
    long sum() {
        long value = product();
        while (at < text.size() && text[at] == '+') {
            ++at;
            value += product();
        }
        return value;
    }
};

int main() {
    std::map<std::string, long> results;
    for (const char *source : {"1+2*3", "((1+2)*(3+4))", "((((5", "2*(3+x)", "(((((((7)))))))"}) {
        std::string text(source);
        try {
            results[text] = Parser{text}.sum();
        } catch (const std::exception &error) {
            std::printf("%s: %s\n", source, error.what());
        }
    }
    for (const auto &[text, value] : results)
        std::printf("%s = %ld\n", text.c_str(), value);
}
