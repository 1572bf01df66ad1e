// The rates of the installed header: their multiples of 2.5 Gb/s and Mb/s are those of rdma-core 44, and convert back.
#include <infiniband/verbs.h>
#include "check.h"

static const struct {
	enum ibv_rate rate;
	int mult, mbps;
} rates[] = {
	{IBV_RATE_2_5_GBPS, 1, 2500},	  {IBV_RATE_120_GBPS, 48, 120000},  {IBV_RATE_100_GBPS, -1, 103125},
	{IBV_RATE_600_GBPS, 240, 637500}, {IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000},
};

int main(void)
{
	for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
		CHECK(ibv_rate_to_mult(rates[i].rate) == rates[i].mult);
		CHECK(ibv_rate_to_mbps(rates[i].rate) == rates[i].mbps);
		CHECK(mbps_to_ibv_rate(rates[i].mbps) == rates[i].rate);
		CHECK(rates[i].mult < 0 || mult_to_ibv_rate(rates[i].mult) == rates[i].rate);
	}
	CHECK(ibv_rate_to_mult(25) == -1 && ibv_rate_to_mbps(25) == -1);
	return 0;
}
