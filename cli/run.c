#include "cli/cli.h"

int cli_run(int argc, char **argv)
{
	static struct run_config config;
	int ret = options_parse(argc, argv, &config);

	if (ret)
		return ret > 0 ? 0 : 125;
	return launcher_run(&config, NULL, NULL);
}
