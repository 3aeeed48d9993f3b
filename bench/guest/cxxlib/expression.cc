#include "numbers.h"
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <unordered_map>
#include <variant>

namespace toolbox
{

namespace
{

using Names = std::map<std::string, double>;
using NodePtr = std::shared_ptr<const Expression::Node>;
using Function = std::variant<std::function<double(double)>, std::function<double(double, double)>>;

const std::unordered_map<std::string, Function> &functions()
{
	using One = std::function<double(double)>;
	using Two = std::function<double(double, double)>;
	static const std::unordered_map<std::string, Function> table{
		{ "sqrt", One([](double x) { return std::sqrt(x); }) },
		{ "abs", One([](double x) { return std::abs(x); }) },
		{ "ln", One([](double x) { return std::log(x); }) },
		{ "max", Two([](double x, double y) { return std::max(x, y); }) },
		{ "hypot", Two([](double x, double y) { return std::hypot(x, y); }) },
	};
	return table;
}

struct Number final : Expression::Node {
	explicit Number(double n) : number(n)
	{
	}
	double value(const Names &) const override
	{
		return number;
	}
	std::string str() const override
	{
		std::ostringstream out;
		out << number;
		return out.str();
	}
	double number;
};

struct Name final : Expression::Node {
	explicit Name(std::string n) : name(std::move(n))
	{
	}
	double value(const Names &names) const override
	{
		auto it = names.find(name);
		if (it == names.end())
			throw std::out_of_range("no value for " + name);
		return it->second;
	}
	std::string str() const override
	{
		return name;
	}
	std::string name;
};

struct Operation final : Expression::Node {
	Operation(char o, NodePtr l, NodePtr r) : op(o), left(std::move(l)), right(std::move(r))
	{
	}
	double value(const Names &names) const override
	{
		double a = left->value(names), b = right->value(names);
		switch (op) {
		case '+': return a + b;
		case '-': return a - b;
		case '*': return a * b;
		case '/': return b == 0 ? throw std::domain_error("division by zero") : a / b;
		default: return std::pow(a, b);
		}
	}
	std::string str() const override
	{
		return '(' + left->str() + ' ' + op + ' ' + right->str() + ')';
	}
	char op;
	NodePtr left, right;
};

struct Call final : Expression::Node {
	Call(std::string n, std::vector<NodePtr> a) : name(std::move(n)), arguments(std::move(a))
	{
		auto it = functions().find(name);
		if (it == functions().end())
			throw std::invalid_argument("no function " + name);
		function = it->second;
		if (arguments.size() != function.index() + 1)
			throw std::invalid_argument("wrong number of arguments for " + name);
	}
	double value(const Names &names) const override
	{
		if (auto one = std::get_if<0>(&function))
			return (*one)(arguments[0]->value(names));
		return std::get<1>(function)(arguments[0]->value(names),
					     arguments[1]->value(names));
	}
	std::string str() const override
	{
		std::string text = name + '(';
		for (const auto &argument : arguments)
			text += (argument == arguments.front() ? "" : ", ") + argument->str();
		return text + ')';
	}
	std::string name;
	std::vector<NodePtr> arguments;
	Function function;
};

class Parser
{
      public:
	explicit Parser(std::string_view text) : text_(text)
	{
	}
	NodePtr all()
	{
		auto node = binary(0);
		if (peek())
			throw std::invalid_argument("cannot read: " + std::string(text_));
		return node;
	}

      private:
	char peek()
	{
		while (!text_.empty() && text_.front() == ' ')
			text_.remove_prefix(1);
		return text_.empty() ? '\0' : text_.front();
	}
	bool take(char c)
	{
		bool is = peek() == c;
		if (is)
			text_.remove_prefix(1);
		return is;
	}
	static int strength(char op)
	{
		return op == '+' || op == '-' ? 1 : op == '*' || op == '/' ? 2 : op == '^' ? 3 : 0;
	}

	// Precedence climbing: operators that bind more strongly than `above`; ^ goes to the right.
	NodePtr binary(int above)
	{
		auto left = operand();
		for (char op = peek(); strength(op) > above; op = peek()) {
			take(op);
			left = std::make_shared<Operation>(op, left,
							   binary(strength(op) - (op == '^')));
		}
		return left;
	}
	NodePtr operand()
	{
		if (take('-'))
			return std::make_shared<Operation>('-', std::make_shared<Number>(0),
							   binary(2));
		if (take('(')) {
			auto inner = binary(0);
			if (!take(')'))
				throw std::invalid_argument("no closing parenthesis");
			return inner;
		}
		if (std::isalpha(static_cast<unsigned char>(peek())))
			return name_or_call();
		double number;
		auto [end, error] =
			std::from_chars(text_.data(), text_.data() + text_.size(), number);
		if (error != std::errc())
			throw std::invalid_argument("no number: " + std::string(text_));
		text_.remove_prefix(std::size_t(end - text_.data()));
		return std::make_shared<Number>(number);
	}
	NodePtr name_or_call()
	{
		std::string name;
		for (; !text_.empty() && std::isalnum(static_cast<unsigned char>(text_.front()));
		     text_.remove_prefix(1))
			name += text_.front();
		if (!take('('))
			return std::make_shared<Name>(std::move(name));
		std::vector<NodePtr> arguments;
		do {
			arguments.push_back(binary(0));
		} while (take(','));
		if (!take(')'))
			throw std::invalid_argument("no closing parenthesis");
		return std::make_shared<Call>(std::move(name), std::move(arguments));
	}

	std::string_view text_;
};

} // namespace

Expression Expression::parse(std::string_view text)
{
	Expression expression;
	expression.root_ = Parser(text).all();
	return expression;
}

double Expression::operator()(const Names &names) const
{
	return root_->value(names);
}

std::string Expression::str() const
{
	return root_->str();
}

} // namespace toolbox
