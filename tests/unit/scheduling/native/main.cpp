// Runs every registered test and says which failed.
#include <cstdio>
#include <exception>

#include "testing.hpp"

int main() {
    int failed = 0;
    for (const testing::Test& test : testing::tests()) {
        try {
            test.run();
        } catch (const std::exception& error) {
            ++failed;
            std::printf("FAILED %s\n  %s\n", test.name, error.what());
        }
    }
    std::printf("%zu tests, %d failed\n", testing::tests().size(), failed);
    return failed == 0 ? 0 : 1;
}
