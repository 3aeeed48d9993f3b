/* /proc/net: the loopback network and the sockets in it. */
#include "sentry/proc/internal.h"

static const char if_inet6[] = "00000000000000000000000000000001 01 80 10 80       lo\n";

static const char dev_text[] =
	"Inter-|   Receive                                                |  Transmit\n"
	" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls "
	"carrier compressed\n"
	"    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0 "
	"      0          0\n";

static const char route_text[] =
	"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT                   "
	"                                    \n";

static const char inet_header[] =
	"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode      "
	"                                               \n";
static const char udp_header[] =
	"   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref "
	"pointer drops             \n";
static const char inet6_header[] =
	"  sl  local_address                         remote_address                        st tx_queue rx_queue tr "
	"tm->when retrnsmt   uid  timeout inode\n";
static const char udp6_header[] =
	"   sl  local_address                         remote_address                        st tx_queue rx_queue "
	"tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n";
static const char unix_header[] = "Num       RefCount Protocol Flags    Type St Inode Path\n";

static const char sockstat[] = "sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\nUDP: inuse 0 mem 0\n"
			       "UDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n";

const struct proc_entry proc_net_entries[] = {
	PROC_TEXT("arp", "IP address       HW type     Flags       HW address            Mask     Device\n"),
	PROC_TEXT("dev", dev_text),
	PROC_TEXT("if_inet6", if_inet6),
	PROC_TEXT("ipv6_route", ""),
	PROC_TEXT("netlink", "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"),
	PROC_TEXT("packet", "sk       RefCnt Type Proto  Iface R Rmem   User   Inode\n"),
	PROC_TEXT("protocols", ""),
	PROC_TEXT("raw", inet_header),
	PROC_TEXT("route", route_text),
	PROC_TEXT("sockstat", sockstat),
	PROC_TEXT("tcp", inet_header),
	PROC_TEXT("tcp6", inet6_header),
	PROC_TEXT("udp", udp_header),
	PROC_TEXT("udp6", udp6_header),
	PROC_TEXT("unix", unix_header),
	{ 0 },
};
