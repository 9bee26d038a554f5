#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
int main()
{
    std::map<std::string, int> counts;
    for (std::string word; std::cin >> word;)
        counts[word]++;
    for (auto &[word, count] : counts)
        std::cout << word << ' ' << count << '\n';
    try {
        counts.at("nothing");
    } catch (const std::out_of_range &) {
        std::cout << "out of range\n";
    }
}
