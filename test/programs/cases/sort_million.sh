seq 1 1000000 | awk '{print ($1 * 7919) % 1000003}' | sort -n --parallel=2 -S 16M | md5sum
