// Tests of every part; prints what fails, and "all passed" when nothing does.
#include "data.h"
#include "numbers.h"
#include "sampler.h"
#include "structures.h"
#include "system.h"
#include "text.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>

using namespace toolbox;

namespace
{

int failures;

void check(bool ok, int line, const char *what)
{
	if (!ok) {
		failures++;
		std::cout << "line " << line << ": " << what << '\n';
	}
}
#define CHECK(...) check((__VA_ARGS__), __LINE__, #__VA_ARGS__)

template <typename F> bool throws(F f)
{
	try {
		f();
	} catch (const std::exception &) {
		return true;
	}
	return false;
}

bool near(double a, double b)
{
	return std::abs(a - b) < 1e-6;
}

void test_text()
{
	CHECK(split("a,b,,c", ',') == std::vector<std::string>{ "a", "b", "", "c" });
	CHECK(join({ "x", "y", "z" }, "--") == "x--y--z");
	CHECK(trim("  two words\n") == "two words");
	CHECK(replace_all("aXbXc", "X", "--") == "a--b--c");
	CHECK(wrap("one two three four", 9) ==
	      std::vector<std::string>{ "one two", "three", "four" });
	CHECK(edit_distance("kitten", "sitting") == 3);
	CHECK(suggest("comit", { "clone", "commit", "merge" }) == "commit");
	CHECK(!suggest("zzzz", { "clone", "commit" }));
	std::istringstream text("The cat. The dog! the end");
	WordCount words;
	words.add(text);
	CHECK(words.total() == 6 &&
	      words.most_common(1).front() == std::make_pair(std::string("the"), std::size_t(3)));
	CHECK(words.by_length().size() == 4);
	CHECK(glob_match("*.{cc,h}", "text.cc") && !glob_match("*.cc", "dir/text.cc"));
	CHECK(glob_match("[!a-c]?", "dx") && throws([] { glob_match("[a", "a"); }));
	CHECK(render("{{greeting:Hello}}, {{ name|upper|reverse }}!", { { "name", "ann" } }) ==
	      "Hello, NNA!");
	CHECK(throws([] { render("{{missing}}", {}); }) && throws([] { render("{{a", {}); }));
}

void test_data()
{
	std::istringstream csv("a,\"b,\"\"c\"\"\"\r\nd,\n");
	auto rows = read_csv(csv);
	CHECK(rows == std::vector<CsvRow>{ { "a", "b,\"c\"" }, { "d", "" } });
	std::ostringstream out;
	write_csv(out, rows);
	CHECK(out.str() == "a,\"b,\"\"c\"\"\"\nd,\n");
	std::istringstream settings("; comment\n[main]\nsize = 42\nfast=true\n");
	auto ini = Ini::parse(settings);
	CHECK(ini.get_as<int>("main", "size") == 42 && ini.get_as<bool>("main", "fast") == true);
	CHECK(!ini.get("main", "none") && ini.sections().size() == 1);
	auto json = Json::parse(R"( {"a": [1, 2.5, "x\ny"], "b": {"c": null, "d": true}} )");
	CHECK(Json::parse(json.dump()) == json && json.depth() == 3);
	CHECK(json.find("a/1") && near(std::get<double>(json.find("a/1")->value), 2.5) &&
	      !json.find("a/9"));
	CHECK(throws([] { Json::parse("[1, 2"); }) &&
	      throws([] { Json::parse("{\"a\":1,\"a\":2}"); }));
	auto url = Url::parse("http://host:8080/a%20b?q=1&r=x+y#end");
	CHECK(url && url->port == 8080 && url->path == "/a b" &&
	      url->query.find("r")->second == "x y");
	CHECK(url && url->str() == "http://host:8080/a%20b?q=1&r=x%20y#end" &&
	      !Url::parse("nonsense"));
	CHECK(to_base64("any carnal") == "YW55IGNhcm5hbA==" &&
	      from_base64("YW55IGNhcm5hbA==") == "any carnal");
	CHECK(!from_base64("a") && to_hex("\x01\xff") == "01ff" &&
	      crc32("123456789") == 0xcbf43926);
	std::string long_text;
	for (int i = 0; i < 500; i++)
		long_text += std::to_string(i * i) + ' ';
	CHECK(huffman_decode(huffman_encode(long_text)) == long_text);
	CHECK(huffman_encode(long_text).size() < 1024 + long_text.size() / 2);
	CHECK(huffman_decode(huffman_encode("aaaa")) == "aaaa" &&
	      throws([] { huffman_decode("x"); }));
}

void test_numbers()
{
	auto summary = summarize({ 4, 1, 3, 2 });
	CHECK(near(summary.mean, 2.5) && near(summary.median, 2.5) &&
	      near(summary.deviation, std::sqrt(5.0 / 3)));
	CHECK(near(correlation({ 1, 2, 3 }, { 2, 4, 6 }), 1) && throws([] { summarize({}); }));
	Matrix m{ { 2, 1 }, { 5, 3 } };
	CHECK(near(m.determinant(), 1) && near((m * *m.inverse()).at(1, 1), 1) &&
	      near(m.transposed().at(0, 1), 5));
	CHECK(!Matrix({ { 1, 2 }, { 2, 4 } }).inverse());
	CHECK(factorial(25).str() == "15511210043330985984000000");
	BigInt big("1000000000000000000");
	big -= BigInt(1);
	CHECK(big == BigInt("999999999999999999") && throws([&] { BigInt(1) -= big; }));
	Sampler sampler(7);
	auto permutation = sampler.permutation(100);
	CHECK(std::is_permutation(permutation.begin(), permutation.end(),
				  Sampler(1).permutation(100).begin()));
	CHECK(std::abs(summarize(sampler.normal(10000, 5, 2)).mean - 5) < 0.2);
	CHECK(sampler.weighted({ 1, 0, 3 }, 1000)[1] == 0 && sampler.identifier(8).size() == 8);
	CHECK(sampler.choose({ "a", "b", "c" }, 2).size() == 2);
	auto expression = Expression::parse("2 ^ 3 ^ 2 - max(x, 4) * -1");
	CHECK(near(expression({ { "x", 5 } }), 517) && throws([&] { expression(); }));
	CHECK(Expression::parse("1+2*3").str() == "(1 + (2 * 3))" &&
	      throws([] { Expression::parse("(1"); }));
	auto time = parse_time("2024-02-29T12:34:56Z");
	CHECK(time && format_time(*time) == "2024-02-29T12:34:56Z" && weekday(*time) == 4);
	CHECK(!parse_time("2023-02-29T00:00:00Z") && format_time(Time()) == "1970-01-01T00:00:00Z");
	CHECK(describe(std::chrono::milliseconds(93784005)) == "1d 2h 3min 4.005s");
	IntervalSet set;
	set.add(0, 10);
	set.add(20, 30);
	set.add(10, 15);
	set.remove(5, 8);
	std::ostringstream out;
	out << set;
	CHECK(out.str() == "[0,5)[8,15)[20,30)" && set.size() == 22 && set.contains(8) &&
	      !set.contains(5));
	CHECK(set.gaps().size() == 2);
	std::ostringstream histogram;
	print_histogram(histogram, { 1, 2, 2, 3 }, 3);
	CHECK(split(histogram.str(), '\n').size() == 4);
}

void test_structures()
{
	Graph graph;
	graph.connect("a", "b", 1);
	graph.connect("b", "c", 1);
	graph.connect("a", "c", 5);
	graph.connect("x", "y");
	CHECK(join(graph.shortest("a", "c"), "") == "abc" && graph.shortest("c", "a").empty());
	CHECK(graph.topological() && join(*graph.topological(), "") == "abcxy" &&
	      graph.components().size() == 2);
	graph.connect("c", "a");
	CHECK(!graph.topological());
	Trie trie;
	for (auto word : { "car", "card", "care", "dog" })
		CHECK(trie.insert(word));
	CHECK(trie.complete("car", 2) == std::vector<std::string>{ "car", "card" });
	CHECK(trie.erase("card") && !trie.contains("card") && trie.contains("care") &&
	      !trie.erase("ca"));
	LruCache cache(2, [](const std::string &key) { return key + "!"; });
	CHECK(cache.get("a") == "a!" && cache.get("b") == "b!" && cache.get("a") == "a!" &&
	      cache.get("c") == "c!");
	CHECK(cache.has("a") && !cache.has("b") && cache.hits_and_misses().first == 1);
	EventBus bus;
	std::vector<std::string> seen;
	int id = bus.subscribe<std::string>([&](const std::string &s) { seen.push_back(s); });
	bus.subscribe<int>([](const int &) { throw std::runtime_error("bad number"); });
	CHECK(bus.publish(std::string("hello")) == 1 && bus.publish(1) == 1 &&
	      bus.publish(1.5) == 0);
	CHECK(seen.size() == 1 && bus.failures().front() == "bad number" && bus.unsubscribe(id));
	Scheduler scheduler;
	std::string order;
	using std::chrono::milliseconds;
	int periodic = scheduler.every(milliseconds(10), [&] { order += 'p'; });
	scheduler.after(milliseconds(15), [&] { order += 'o'; });
	CHECK(scheduler.advance(milliseconds(25)) == 3 && order == "pop" &&
	      scheduler.cancel(periodic));
}

void test_threads()
{
	auto counts = count_in_parallel({ "a b a", "b c", "a" }, 3);
	CHECK(counts["a"] == 3 && counts["b"] == 2 && counts["c"] == 1);
	CHECK(sum_of_primes(1000, 4) == 76127);
	Channel channel(2);
	std::atomic<int> received{ 0 };
	std::vector<std::thread> consumers;
	for (int i = 0; i < 3; i++)
		consumers.emplace_back([&] {
			while (channel.receive())
				received++;
		});
	for (int i = 0; i < 100; i++)
		CHECK(channel.send(std::to_string(i)));
	channel.close();
	for (auto &consumer : consumers)
		consumer.join();
	CHECK(received == 100 && !channel.send("late") &&
	      !channel.receive_for(std::chrono::milliseconds(1)));
}

void test_files()
{
	TemporaryFolder folder;
	std::filesystem::create_directories(folder.path() / "a" / "b");
	std::ofstream(folder.path() / "a" / "one.txt") << "12345";
	std::ofstream(folder.path() / "a" / "b" / "two.dat") << "123";
	auto usage = disk_usage(folder.path());
	CHECK(usage.files == 2 && usage.folders == 2 && usage.bytes == 8 &&
	      usage.by_extension[".txt"] == 5);
	CHECK(newest(folder.path(), 1).size() == 1);
	auto file = folder.path() / "store";
	{
		Store store(file);
		store.put("key one", "value\nwith a line");
		store.put("two", "2");
		store.put("two", "two");
		CHECK(store.remove("key one") && !store.remove("key one"));
	}
	auto before = std::filesystem::file_size(file);
	Store store(file);
	store.compact();
	CHECK(store.get("two") == "two" && store.size() == 1 &&
	      std::filesystem::file_size(file) < before);
	std::filesystem::resize_file(file, 4);
	CHECK(throws([&] { Store again(file); }));
}

} // namespace

int main()
{
	test_text();
	test_data();
	test_numbers();
	test_structures();
	test_threads();
	test_files();
	if (failures == 0)
		std::cout << "all passed\n";
	return failures ? 1 : 0;
}
