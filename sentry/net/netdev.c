#include "sentry/net/netdev.h"
#include <arpa/inet.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/in.h>
#include <linux/sockios.h>
#include <string.h>

static const char lo_name[IFNAMSIZ] = "lo";

static void lo_address(struct sockaddr *sa, u32 addr)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(addr) };

	memcpy(sa, &in, sizeof(in));
}

static s64 get_ifconf(struct task *t, uaddr arg)
{
	struct ifconf conf;
	struct ifreq req;

	if (copy_in(t, &conf, arg, sizeof(conf)) < 0)
		return -EFAULT;
	if (!conf.ifc_buf) {
		conf.ifc_len = sizeof(req);
	} else if (conf.ifc_len < (int)sizeof(req)) {
		conf.ifc_len = 0;
	} else {
		memset(&req, 0, sizeof(req));
		memcpy(req.ifr_name, lo_name, IFNAMSIZ);
		lo_address(&req.ifr_addr, INADDR_LOOPBACK);
		if (copy_out(t, ua((u64)(uintptr_t)conf.ifc_buf), &req, sizeof(req)) < 0)
			return -EFAULT;
		conf.ifc_len = sizeof(req);
	}
	return copy_out(t, arg, &conf, sizeof(conf));
}

static s64 get_ifreq(struct task *t, u32 cmd, uaddr arg)
{
	struct ifreq req;

	if (copy_in(t, &req, arg, sizeof(req)) < 0)
		return -EFAULT;
	if (cmd == SIOCGIFNAME) {
		if (req.ifr_ifindex != NETDEV_LO_INDEX)
			return -ENODEV;
		memcpy(req.ifr_name, lo_name, IFNAMSIZ);
		return copy_out(t, arg, &req, sizeof(req));
	}
	req.ifr_name[IFNAMSIZ - 1] = 0;
	if (strcmp(req.ifr_name, lo_name) != 0)
		return -ENODEV;
	memset(&req.ifr_ifru, 0, sizeof(req.ifr_ifru));
	switch (cmd) {
	case SIOCGIFFLAGS: req.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING; break;
	case SIOCGIFADDR: lo_address(&req.ifr_addr, INADDR_LOOPBACK); break;
	case SIOCGIFNETMASK: lo_address(&req.ifr_netmask, 0xff000000); break;
	case SIOCGIFBRDADDR:
	case SIOCGIFDSTADDR:
		lo_address(&req.ifr_broadaddr, cmd == SIOCGIFDSTADDR ? INADDR_LOOPBACK : 0);
		break;
	case SIOCGIFMTU: req.ifr_mtu = NETDEV_LO_MTU; break;
	case SIOCGIFINDEX: req.ifr_ifindex = NETDEV_LO_INDEX; break;
	case SIOCGIFHWADDR: req.ifr_hwaddr.sa_family = ARPHRD_LOOPBACK; break;
	case SIOCGIFTXQLEN: req.ifr_qlen = 1000; break;
	default: /* SIOCGIFMETRIC, SIOCGIFMAP: zeros */ break;
	}
	return copy_out(t, arg, &req, sizeof(req));
}

s64 netdev_ioctl(struct task *t, u32 cmd, uaddr arg)
{
	switch (cmd) {
	case SIOCGIFCONF: return get_ifconf(t, arg);
	case SIOCGIFNAME:
	case SIOCGIFFLAGS:
	case SIOCGIFADDR:
	case SIOCGIFNETMASK:
	case SIOCGIFBRDADDR:
	case SIOCGIFDSTADDR:
	case SIOCGIFMTU:
	case SIOCGIFINDEX:
	case SIOCGIFHWADDR:
	case SIOCGIFTXQLEN:
	case SIOCGIFMETRIC:
	case SIOCGIFMAP: return get_ifreq(t, cmd, arg);
	case SIOCSIFFLAGS:
	case SIOCSIFADDR:
	case SIOCSIFNETMASK:
	case SIOCSIFMTU: return -EPERM;
	default: return -ENOTTY;
	}
}
