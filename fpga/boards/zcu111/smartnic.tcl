# A Vivado project for the ZCU111 with the smartNIC behind the processor, up to bitstream and handoff.
#
#   python -m fpga.smartnic build --out BUILD
#   vivado -mode batch -source smartnic.tcl -tclargs [BUILD] [PROJECT] [TOP]
#
# Runs package_ip.tcl first. The registers are at 0xA0000000, where `fpga.smartnic.driver` looks for them through
# `pynq://0xA0000000`. Weights are read from the processor's DRAM through S_AXI_HP0: reserve memory there, at a multiple
# of 4 KiB in its lowest 2 GiB, and write its address as BASE. This port has half the width of a word of weights, so
# that at CLOCK_MHZ it brings at most a word in two cycles; results do not change. The smartNIC and its buses have
# the clock `aclk` of CLOCK_MHZ, an input.
#
# The streams are external interfaces of the block design. TOP is a folder with Verilog and constraints (*.v, *.sv, *.xdc)
# whose module `board` instantiates `system_wrapper` and connects them:
#
#   aclk                                   the clock of the RF data converter's streams, 250 MHz for 4 GS/s
#   m_axis_activation, m_axis_weight       two DACs of the RF data converter: 16 samples of 16 bits in every cycle
#   s_axis_light                           the ADC of the detector: the same; its valid is not used
#   s_axis_rx, m_axis_tx                   a 100G MAC (cmac_usplus) with beats of 64 bytes, each behind a FIFO of whole
#                                          frames that crosses from its 322 MHz to aclk. Of s_axis_rx, tuser is 1 with
#                                          the last beat of a frame that the MAC found wrong. It cannot wait: the FIFO
#                                          must not either.
#
# Without TOP the project ends with a synthesis of the wrapper out of context and reports of its cells and timing: the
# streams have more wires than the device has pins.
#
# NOT RUN by the project's tests, which have no Vivado: see package_ip.tcl.

set here [file dirname [file normalize [info script]]]
set build [file normalize [expr {[llength $argv] > 0 ? [lindex $argv 0] : $here}]]
set project [file normalize [expr {[llength $argv] > 1 ? [lindex $argv 1] : [file join $build vivado]}]]
set board_top [expr {[llength $argv] > 2 ? [file normalize [lindex $argv 2]] : ""}]
set part xczu28dr-ffvg1517-2-e
set board xilinx.com:zcu111:part0:1.4
set CLOCK_MHZ 250
set BASE 0xA0000000
set SPAN 64K
set interfaces {s_axis_rx m_axis_tx m_axis_activation m_axis_weight s_axis_light}

set arguments $argv
set argv [list smartnic axi $build [file join $build ip]]
source [file join $here package_ip.tcl]
set argv $arguments
close_project

create_project smartnic $project -part $part -force
set_property board_part $board [current_project]
set_property ip_repo_paths [file join $build ip] [current_project]
update_ip_catalog

create_bd_design system
set ps [create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e processor]
apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e -config {apply_board_preset 1} $ps
# GP0 as a master is M_AXI_HPM0_FPD, GP2 as a slave is S_AXI_HP0_FPD.
set_property -dict [list \
    CONFIG.PSU__USE__M_AXI_GP0 {1} \
    CONFIG.PSU__USE__M_AXI_GP1 {0} \
    CONFIG.PSU__USE__M_AXI_GP2 {0} \
    CONFIG.PSU__USE__S_AXI_GP2 {1} \
    CONFIG.PSU__SAXIGP2__DATA_WIDTH {128} \
] $ps
set clock [create_bd_port -dir I -type clk -freq_hz [expr {$CLOCK_MHZ * 1000000}] aclk]
set reset [create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset]
foreach name {control weights} {
    set connect [create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect $name]
    set_property -dict [list CONFIG.NUM_SI {1} CONFIG.NUM_MI {1}] $connect
}
create_bd_cell -type ip -vlnv lightbed:user:smartnic:1.0 smartnic

connect_bd_net $clock [get_bd_pins reset/slowest_sync_clk] \
    [get_bd_pins processor/maxihpm0_fpd_aclk] [get_bd_pins processor/saxihp0_fpd_aclk] \
    [get_bd_pins control/aclk] [get_bd_pins weights/aclk] [get_bd_pins smartnic/aclk]
connect_bd_net [get_bd_pins processor/pl_resetn0] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins reset/peripheral_aresetn] \
    [get_bd_pins control/aresetn] [get_bd_pins weights/aresetn] [get_bd_pins smartnic/aresetn]
connect_bd_intf_net [get_bd_intf_pins processor/M_AXI_HPM0_FPD] [get_bd_intf_pins control/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins control/M00_AXI] [get_bd_intf_pins smartnic/s_axi]
connect_bd_intf_net [get_bd_intf_pins smartnic/m_axi] [get_bd_intf_pins weights/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins weights/M00_AXI] [get_bd_intf_pins processor/S_AXI_HP0_FPD]
foreach stream $interfaces {
    make_bd_intf_pins_external -name $stream [get_bd_intf_pins smartnic/$stream]
}
set_property CONFIG.ASSOCIATED_BUSIF [join $interfaces :] $clock

assign_bd_address -offset $BASE -range $SPAN \
    -target_address_space [get_bd_addr_spaces processor/Data] [get_bd_addr_segs smartnic/s_axi/reg0]
assign_bd_address -offset 0x0 -range 2G \
    -target_address_space [get_bd_addr_spaces smartnic/m_axi] [get_bd_addr_segs processor/SAXIGP2/HP0_DDR_LOW]
validate_bd_design
save_bd_design

make_wrapper -files [get_files system.bd] -top -import
if {$board_top eq ""} {
    set_property top system_wrapper [current_fileset]
    set_property -name {STEPS.SYNTH_DESIGN.ARGS.MORE OPTIONS} -value {-mode out_of_context} -objects [get_runs synth_1]
    launch_runs synth_1 -jobs 4
    wait_on_run synth_1
    open_run synth_1
    report_utilization -hierarchical -file [file join $build smartnic_utilization.txt]
    report_timing_summary -file [file join $build smartnic_timing.txt]
    return
}

foreach pattern {*.v *.sv} {
    foreach source [glob -nocomplain -directory $board_top $pattern] {
        add_files $source
    }
}
foreach constraints [glob -nocomplain -directory $board_top *.xdc] {
    add_files -fileset constrs_1 $constraints
}
set_property top board [current_fileset]
launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1

# pynq takes the two files under one name.
set runs [get_property DIRECTORY [get_runs impl_1]]
file copy -force [file join $runs board.bit] [file join $build smartnic.bit]
file copy -force [glob [file join $project smartnic.gen sources_1 bd system hw_handoff system.hwh]] \
    [file join $build smartnic.hwh]
