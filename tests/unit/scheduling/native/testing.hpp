// A test is a function that throws when what it checks does not hold. No framework.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace testing {

struct Test {
    const char* name;
    void (*run)();
};

inline std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

struct Register {
    Register(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

class Failure : public std::runtime_error {
  public:
    Failure(const char* file, int line, const std::string& what)
        : std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + what) {}
};

template <typename Error>
bool throws(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error&) {
        return true;
    }
    return false;
}

}  // namespace testing

#define TEST(name)                                               \
    static void name();                                          \
    static const testing::Register register_##name(#name, name); \
    static void name()

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) throw testing::Failure(__FILE__, __LINE__, #condition); \
    } while (false)

#define CHECK_THROWS(Error, expression) CHECK(testing::throws<Error>([&] { (void)(expression); }))
